// SPDX-License-Identifier: Apache-2.0
//
// What is measured once and kept (nvfp4-moe 12.4 to 12.7): sizes that are measured, which tactic a
// measurement picks, and the file that remembers it. How a step is timed is a backend's matter.
#ifndef HALFBYTE_MOE_TUNING_H_
#define HALFBYTE_MOE_TUNING_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "halfbyte/result.h"

namespace halfbyte {

/// Token counts that are measured, ascending: powers of two to 256, steps of 256 to 2048, steps of
/// 512 to 4096, powers of two above, all up to `capacity_tokens`, and that itself.
std::vector<std::int64_t> token_buckets(std::int64_t capacity_tokens);
/// The smallest bucket that holds `num_tokens`, 1 .. the last bucket.
std::int64_t bucket_of(std::span<const std::int64_t> buckets, std::int64_t num_tokens);

/// Index of the tactic to take: the default unless another's median is at least 3 % shorter; of
/// those the fastest, the first of equals. With several ranks `median_us` are maxima over ranks; an
/// infinity is a tactic that failed or missed its bound.
std::size_t pick_tactic(std::span<const double> median_us, std::size_t default_tactic);

/// Everything that a measurement depends on, as name and value; equal for equal conditions.
using TuningKey = std::map<std::string, std::string>;
/// The tactic's name of each bucket that was measured.
using TuningTable = std::map<std::int64_t, std::string>;
/// The tactic of a step: that of the smallest bucket that holds it. Null: none was measured.
const std::string* find_tactic(const TuningTable& table, std::int64_t num_tokens);

/// The ways to run the steps of one bucket.
struct TacticList {
  std::int64_t num_tokens = 0;     // the bucket
  std::vector<std::string> names;  // worth measuring; the backend's own choice is the first
};

/// Runs the experts of a layer, on buffers of its own.
class TacticTimer {
 public:
  virtual ~TacticTimer() = default;
  /// Readies a step of so many tokens and keeps what the default tactic answers.
  virtual Status set_step(std::int64_t num_tokens, const std::string& default_tactic) = 0;
  /// Ok when the tactic runs and answers the same within the bounds of nvfp4-moe 8.3.
  virtual Status check(const std::string& tactic) = 0;
  /// Of one step among several that follow each other, as a tactic runs that passed its check;
  /// before the first nothing is in a cache.
  virtual Result<double> microseconds(const std::string& tactic) = 0;
};

/// Measures each list and picks a tactic for its bucket. A tactic that fails its check or a timing
/// is out; so with several ranks every rank times the same tactics in the same order. Errors: those
/// of set_step().
Result<TuningTable> measure_tactics(std::span<const TacticList> lists, TacticTimer& timer);

/// The file of this key inside a cache directory: a name that other keys rarely share.
std::string tuning_file_name(const TuningKey& key);
/// The table that the directory remembers for this key. Every error means "measure again":
/// kNotFound: there is no such file; kInvalidArgument: it is of another key or version;
/// kCorruptData: it is damaged. The last two name it.
Result<TuningTable> read_tuning(const std::string& directory, const TuningKey& key);
/// Writes the table under its key, whole or not at all. kInvalidArgument: a name or value holds a
/// line break, or the file is of another key, and stays; kNotFound: the directory cannot be
/// written.
Status write_tuning(const std::string& directory, const TuningKey& key, const TuningTable& table);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_TUNING_H_
