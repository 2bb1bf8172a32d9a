// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <system_error>

#include "base/thread_pool.h"
#include "checkpoint/index.h"
#include "checkpoint/json_text.h"

namespace halfbyte {
namespace {

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr std::string_view kUsualIndex = "model.safetensors.index.json";
constexpr std::size_t kMaxListed = 16;

struct Listing {
  std::vector<std::string> shards;  // sorted
  std::vector<std::string> indices;
};

Result<Listing> list_directory(const std::string& directory) {
  Listing listing;
  std::error_code error;
  std::filesystem::directory_iterator it(directory, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.ends_with(kIndexSuffix)) {
      listing.indices.push_back(std::move(name));
    } else if (name.ends_with(kSuffix)) {
      listing.shards.push_back(std::move(name));
    }
  }
  if (error) {
    return Status(StatusCode::kNotFound, fmt::format("{}: {}", directory, error.message()));
  }
  std::sort(listing.shards.begin(), listing.shards.end());
  std::sort(listing.indices.begin(), listing.indices.end());
  return listing;
}

/// The index to follow; none when there is none.
Result<std::optional<std::string>> choose_index(const Listing& listing) {
  if (listing.indices.empty()) return std::optional<std::string>();
  for (const std::string& name : listing.indices) {
    if (name == kUsualIndex) return std::optional<std::string>(name);
  }
  if (listing.indices.size() == 1) return std::optional<std::string>(listing.indices[0]);
  return Status(StatusCode::kInvalidArgument,
                fmt::format("several index files, none of them {}: {}; keep one or use "
                            "--ignore-index",
                            kUsualIndex, fmt::join(listing.indices, ", ")));
}

std::string join_some(const std::vector<std::string>& names) {
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMaxListed));
  std::string text = fmt::format("{}", fmt::join(names.begin(), end, ", "));
  if (names.size() > kMaxListed) text += fmt::format(" and {} more", names.size() - kMaxListed);
  return text;
}

/// kNotFound when the index names files that are not there.
Status check_shards_exist(const SafetensorsIndex& index,
                          const Listing& listing,
                          std::string_view index_name) {
  std::vector<std::string> missing;
  std::vector<bool> is_missing(index.files.size());
  for (std::size_t i = 0; i < index.files.size(); ++i) {
    is_missing[i] =
        !std::binary_search(listing.shards.begin(), listing.shards.end(), index.files[i]);
    if (is_missing[i]) missing.push_back(index.files[i]);
  }
  if (missing.empty()) return {};
  const auto count = std::count_if(index.tensors.begin(), index.tensors.end(), [&](const auto& t) {
    return is_missing[static_cast<std::size_t>(t.second)];
  });
  std::sort(missing.begin(), missing.end());
  return Status(StatusCode::kNotFound,
                fmt::format("{}: named by {} for {} tensors, not in the directory",
                            join_some(missing), index_name, count));
}

Result<SafetensorsIndex> read_index(const std::string& directory, const std::string& name) {
  HALFBYTE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(directory + "/" + name));
  auto index = read_safetensors_index(as_text(file.bytes()));
  if (!index.ok()) return index.take_status().with_context(name);
  return index;
}

/// Runs on a pool's thread, which no exception may leave.
Result<std::vector<SafetensorsEntry>> read_header(std::span<const std::uint8_t> file) {
  try {
    return read_safetensors_header(file);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "host memory: not enough for the header");
  } catch (const std::exception& error) {
    return Status(StatusCode::kInternal, fmt::format("header: {}", error.what()));
  }
}

}  // namespace

Status RawTensors::map_files(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    HALFBYTE_ASSIGN_OR_RETURN(MappedFile map, MappedFile::open(directory_ + "/" + name));
    files_.push_back({name, std::move(map)});
  }
  return {};
}

Result<std::vector<FileEntries>> RawTensors::read_headers() const {
  std::vector<Result<FileEntries>> headers;
  headers.reserve(files_.size());
  for (std::size_t i = 0; i < files_.size(); ++i)
    headers.emplace_back(FileEntries());
  const auto num_files = static_cast<std::int64_t>(files_.size());
  ThreadPool pool(static_cast<int>(std::min<std::int64_t>(num_files, usable_cores())));
  pool.parallel_for(num_files, [&](std::int64_t i, int /*thread*/) {
    const auto at = static_cast<std::size_t>(i);
    headers[at] = read_header(files_[at].map.bytes());
  });
  std::vector<FileEntries> entries;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    if (!headers[i].ok()) return headers[i].take_status().with_context(files_[i].name);
    entries.push_back(std::move(headers[i]).value());
  }
  return entries;
}

void RawTensors::reserve(const std::vector<FileEntries>& files) {
  std::size_t num_tensors = 0, num_dims = 0, num_chars = 0;
  for (const FileEntries& file : files) {
    num_tensors += file.size();
    for (const SafetensorsEntry& entry : file) {
      num_dims += entry.shape.size();
      num_chars += entry.name.size();
    }
  }
  tensors_.reserve(num_tensors);
  shapes_.reserve(num_dims);
  names_.reserve(num_chars);
}

Status RawTensors::add_headers() {
  HALFBYTE_ASSIGN_OR_RETURN(const std::vector<FileEntries> files, read_headers());
  reserve(files);  // the tensors point into the arenas
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (const SafetensorsEntry& entry : files[i]) {
      const std::size_t name_begin = names_.size(), shape_begin = shapes_.size();
      names_ += entry.name;
      shapes_.insert(shapes_.end(), entry.shape.begin(), entry.shape.end());
      tensors_.push_back({std::string_view(names_).substr(name_begin), entry.dtype,
                          std::span(shapes_).subspan(shape_begin),
                          files_[i].map.bytes().subspan(entry.begin, entry.end - entry.begin),
                          static_cast<std::int32_t>(i)});
    }
  }
  return {};
}

Status RawTensors::sort_and_check_duplicates() {
  std::sort(tensors_.begin(), tensors_.end(),
            [](const RawTensor& a, const RawTensor& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(tensors_.begin(), tensors_.end(),
                         [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice == tensors_.end()) return {};
  return Status(StatusCode::kCorruptData,
                fmt::format("{}: in {} and in {}; remove one of the files", twice->name,
                            file_name(*twice), file_name(*(twice + 1))));
}

Status RawTensors::compare_with_index(const SafetensorsIndex& index,
                                      std::string_view index_name,
                                      NoticeSink& notices) const {
  std::vector<std::string> absent;
  std::size_t num_present = 0, num_elsewhere = 0;
  std::vector<bool> is_listed(tensors_.size());
  for (const auto& [name, file] : index.tensors) {
    const RawTensor* tensor = find(name);
    if (tensor == nullptr) {
      absent.push_back(fmt::format("{} ({})", name, index.files[static_cast<std::size_t>(file)]));
      continue;
    }
    ++num_present;
    is_listed[static_cast<std::size_t>(tensor - tensors_.data())] = true;
    if (file_name(*tensor) != index.files[static_cast<std::size_t>(file)]) ++num_elsewhere;
  }
  if (!absent.empty()) {
    return Status(StatusCode::kNotFound, fmt::format("{} lists {} tensors that no file holds: {}",
                                                     index_name, absent.size(), join_some(absent)));
  }
  if (num_elsewhere > 0) {
    notices.notice("index elsewhere", fmt::format("{}: {} tensors lie in another of its files",
                                                  index_name, num_elsewhere));
  }
  if (num_present < tensors_.size()) {
    const auto first = std::find(is_listed.begin(), is_listed.end(), false) - is_listed.begin();
    notices.notice("index unlisted",
                   fmt::format("{}: does not list {} tensors of its files, they are read all the "
                               "same (first: {})",
                               index_name, tensors_.size() - num_present,
                               tensors_[static_cast<std::size_t>(first)].name));
  }
  return {};
}

Result<std::unique_ptr<RawTensors>> RawTensors::open(const std::string& directory,
                                                     bool ignore_index,
                                                     NoticeSink& notices) {
  HALFBYTE_ASSIGN_OR_RETURN(const Listing listing, list_directory(directory));
  std::optional<std::string> index_name;
  if (!ignore_index) {
    HALFBYTE_ASSIGN_OR_RETURN(index_name, choose_index(listing));
  }
  SafetensorsIndex index;
  std::vector<std::string> to_read = listing.shards;
  auto raw = std::make_unique<RawTensors>();
  raw->directory_ = directory;
  if (index_name) {
    HALFBYTE_ASSIGN_OR_RETURN(index, read_index(directory, *index_name));
    HALFBYTE_RETURN_IF_ERROR(check_shards_exist(index, listing, *index_name));
    to_read = index.files;
    std::sort(to_read.begin(), to_read.end());
    std::set_difference(listing.shards.begin(), listing.shards.end(), to_read.begin(),
                        to_read.end(), std::back_inserter(raw->unread_files_));
    if (!raw->unread_files_.empty()) {
      notices.notice("unread files", fmt::format("not read, {} does not name them: {}", *index_name,
                                                 join_some(raw->unread_files_)));
    }
  }
  if (to_read.empty()) {
    return Status(StatusCode::kNotFound, fmt::format("{}: no *{} file", directory, kSuffix));
  }
  HALFBYTE_RETURN_IF_ERROR(raw->map_files(to_read));
  HALFBYTE_RETURN_IF_ERROR(raw->add_headers());
  HALFBYTE_RETURN_IF_ERROR(raw->sort_and_check_duplicates());
  if (index_name) {
    HALFBYTE_RETURN_IF_ERROR(raw->compare_with_index(index, *index_name, notices));
  }
  return raw;
}

const RawTensor* RawTensors::find(std::string_view name) const {
  const auto it = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const RawTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

std::uint64_t RawTensors::total_bytes() const {
  std::uint64_t total = 0;
  for (const RawTensor& tensor : tensors_)
    total += tensor.bytes.size();
  return total;
}

void RawTensors::drop(const RawTensor& tensor) const {
  const MappedFile& map = files_[static_cast<std::size_t>(tensor.file_idx)].map;
  if (tensor.bytes.empty()) return;
  map.drop(static_cast<std::size_t>(tensor.bytes.data() - map.bytes().data()), tensor.bytes.size());
}

std::vector<std::string> RawTensors::tensor_names_of_unread(const std::string& file) const {
  std::vector<std::string> names;
  const auto map = MappedFile::open(directory_ + "/" + file);
  if (!map.ok()) return names;
  auto header = read_header(map->bytes());
  if (!header.ok()) return names;
  for (SafetensorsEntry& entry : *header)
    names.push_back(std::move(entry.name));
  return names;
}

}  // namespace halfbyte
