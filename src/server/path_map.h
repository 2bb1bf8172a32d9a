// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_SERVER_PATH_MAP_H_
#define HALFBYTE_SERVER_PATH_MAP_H_

#include <string>
#include <utility>
#include <vector>

#include "server/api_error.h"

namespace halfbyte::server {

/// For requests that are read as an equivalent body of another format: where its fields stand in
/// what the client wrote.
class PathMap {
 public:
  void add(std::string equivalent, std::string written);
  /// The path that the client wrote.
  std::string as_written(const std::string& path) const;
  /// `error` about that path, in its message too.
  ApiError as_written(ApiError error) const;

 private:
  std::vector<std::pair<std::string, std::string>> paths_;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_PATH_MAP_H_
