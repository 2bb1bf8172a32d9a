// SPDX-License-Identifier: Apache-2.0
//
// A folder with the shipped model's tokenizer and what a test puts beside it.
#ifndef HALFBYTE_TESTS_UNIT_SERVER_TEXT_FOLDER_H_
#define HALFBYTE_TESTS_UNIT_SERVER_TEXT_FOLDER_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "server/json.h"
#include "server/model_text.h"

namespace halfbyte::server {

class TextFolder {
 public:
  TextFolder() {
    static int count = 0;
    path_ /= "halfbyte_text_" + std::to_string(::getpid()) + "_" + std::to_string(count++);
    const std::filesystem::path shipped =
        std::filesystem::path(HALFBYTE_SOURCE_DIR) / "models" / "gsm-mini-qwen3moe-nvfp4";
    std::filesystem::create_directories(path_);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
      std::filesystem::copy_file(shipped / name, path_ / name,
                                 std::filesystem::copy_options::overwrite_existing);
  }
  ~TextFolder() { std::filesystem::remove_all(path_); }
  TextFolder(const TextFolder&) = delete;
  TextFolder& operator=(const TextFolder&) = delete;

  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name) << content;
  }
  // Replaces members of an object that is there.
  void set(const std::string& name, const Json& members) const {
    Json object = Json::parse(std::ifstream(path_ / name));
    object.update(members);
    write(name, object.dump());
  }
  Result<std::unique_ptr<ModelText>> load(const TextOptions& options = {}) const {
    return ModelText::load(path_.string(), options);
  }
  std::unique_ptr<ModelText> loaded(const TextOptions& options = {}) const {
    auto text = load(options);
    EXPECT_TRUE(text.ok()) << text.status().to_string();
    return std::move(text).value();
  }

 private:
  std::filesystem::path path_ = ::testing::TempDir();
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_TESTS_UNIT_SERVER_TEXT_FOLDER_H_
