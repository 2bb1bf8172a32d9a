// SPDX-License-Identifier: Apache-2.0
#include "moe/backends/cuda_sm90_tactics.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace halfbyte {
namespace {

constexpr std::string_view kDecode = "decode ";
constexpr std::string_view kPrefill = "prefill ";
constexpr int kPrefillRows = 256;

// "128x8"; false when the text is anything else.
bool read_tile(std::string_view text, Sm90Tactic& tactic) {
  const char* const end = text.data() + text.size();
  const auto rows = std::from_chars(text.data(), end, tactic.rows);
  if (rows.ec != std::errc() || rows.ptr == end || *rows.ptr != 'x') return false;
  const auto tokens = std::from_chars(rows.ptr + 1, end, tactic.tokens);
  return tokens.ec == std::errc() && tokens.ptr == end;
}

// The tile of decode that a tactic names, or the end.
auto find_tile(const Sm90Tactic& tactic) {
  const auto tiles = sm90::list_moe_decode_tiles();
  return std::find_if(tiles.begin(), tiles.end(), [&tactic](const sm90::MoeDecodeTile& tile) {
    return sm90_decode_tactic(tile) == tactic;
  });
}

}  // namespace

std::string Sm90Tactic::to_string() const {
  return fmt::format("{}{}x{}", decode ? kDecode : kPrefill, rows, tokens);
}

const sm90::MoeDecodeTile& Sm90Tactic::tile() const {
  return *find_tile(*this);
}

Sm90Tactic sm90_decode_tactic(const sm90::MoeDecodeTile& tile) {
  return {true, 32 * tile.row_groups, 8 * tile.token_blocks};
}

Sm90Tactic sm90_prefill_tactic(int tile_tokens) {
  return {false, kPrefillRows, tile_tokens};
}

std::vector<Sm90Tactic> all_sm90_tactics(bool decode, std::span<const int> tile_tokens) {
  std::vector<Sm90Tactic> tactics;
  if (decode) {
    for (const sm90::MoeDecodeTile& tile : sm90::list_moe_decode_tiles())
      tactics.push_back(sm90_decode_tactic(tile));
  }
  for (const int tokens : tile_tokens)
    tactics.push_back(sm90_prefill_tactic(tokens));
  return tactics;
}

std::optional<Sm90Tactic> find_sm90_tactic(std::string_view name) {
  Sm90Tactic tactic;
  tactic.decode = name.starts_with(kDecode);
  if (!tactic.decode && !name.starts_with(kPrefill)) return std::nullopt;
  name.remove_prefix((tactic.decode ? kDecode : kPrefill).size());
  if (!read_tile(name, tactic)) return std::nullopt;
  const bool known = tactic.decode ? find_tile(tactic) != sm90::list_moe_decode_tiles().end()
                                   : tactic.rows == kPrefillRows;
  return known ? std::optional(tactic) : std::nullopt;
}

}  // namespace halfbyte
