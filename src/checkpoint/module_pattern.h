// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_CHECKPOINT_MODULE_PATTERN_H_
#define HALFBYTE_CHECKPOINT_MODULE_PATTERN_H_

#include <memory>
#include <string>
#include <string_view>

#include "halfbyte/result.h"

namespace halfbyte {

/// The two languages in which configs name modules.
enum class PatternDialect { kModelOpt, kCompressedTensors };

/// A compiled exclude or target pattern. Immutable; any thread may match.
///
///   ModelOpt: a shell glob over the whole path ("*" crosses dots). Without a wildcard, a path: it
///   covers itself and what lies below it at a dot.
///   compressed-tensors: an exact path, a class name ("Linear"), or "re:" and a regular expression
///   anchored at the start only, as Python's re.match.
///
/// Names are compared under every prefix variant of checkpoints.md 5.1.
class ModulePattern {
 public:
  /// kCorruptData: a regular expression that does not compile, with its position.
  static Result<std::shared_ptr<const ModulePattern>> compile(std::string text,
                                                              PatternDialect dialect);
  ~ModulePattern();
  ModulePattern(const ModulePattern&) = delete;
  ModulePattern& operator=(const ModulePattern&) = delete;

  /// `module` as the checkpoint spells it, with or without its prefix.
  bool matches(std::string_view module) const;
  /// As the config has it.
  const std::string& text() const { return text_; }

 private:
  enum class Kind { kGlob, kContainer, kExact, kLinearClass, kRegex };
  struct Regex;
  ModulePattern(std::string text, Kind kind);
  bool matches_regex(std::string_view module) const;

  std::string text_;
  Kind kind_;
  std::string_view body_;  // of text_, without prefix or "re:"
  std::unique_ptr<Regex> regex_;
};

/// Shell glob over a whole string: *, ?, [abc], [a-z], [!abc].
bool glob_matches(std::string_view glob, std::string_view text);

}  // namespace halfbyte

#endif  // HALFBYTE_CHECKPOINT_MODULE_PATTERN_H_
