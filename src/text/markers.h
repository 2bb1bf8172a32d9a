// SPDX-License-Identifier: Apache-2.0
//
// Markers in a text that comes in pieces.
#ifndef HALFBYTE_TEXT_MARKERS_H_
#define HALFBYTE_TEXT_MARKERS_H_

#include <cstddef>
#include <string_view>

namespace halfbyte {

/// How a text begins: with something else, with less than a marker's beginning and nothing else
/// (also with nothing), with the whole marker.
enum class MarkerFit { kNone, kPartial, kWhole };
MarkerFit fit_marker(std::string_view text, std::string_view marker);

/// Bytes at the end of `text` that could be the beginning of `marker`.
std::size_t num_held_for(std::string_view text, std::string_view marker);

/// `text` from its first character that is not white space (of ASCII).
std::string_view skip_blanks(std::string_view text);
/// The same from both ends.
std::string_view strip_blanks(std::string_view text);

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_MARKERS_H_
