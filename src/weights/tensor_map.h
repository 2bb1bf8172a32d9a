// SPDX-License-Identifier: Apache-2.0
//
// Names of tensors -> (layer, expert, projection, role), parsed by hand and once. Inside weights/
// only.
#ifndef HALFBYTE_WEIGHTS_TENSOR_MAP_H_
#define HALFBYTE_WEIGHTS_TENSOR_MAP_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/directory.h"

namespace halfbyte {

/// What a tensor is to its linear: the last component of its name.
enum class TensorRole : std::uint8_t {
  kWeight,
  kWeightPacked,
  kWeightScale,
  kWeightScale2,
  kWeightGlobalScale,
  kWeightScaleInv,
  kInputScale,
  kInputGlobalScale,
  kPreQuantScale,
  kBias,
  kOther,  // not part of a linear
};
inline constexpr std::size_t kNumLinearRoles = static_cast<std::size_t>(TensorRole::kOther);
TensorRole parse_role(std::string_view name);
std::string_view role_name(TensorRole role);

/// The tensors of one linear; null: absent.
struct LinearEntries {
  std::array<const RawTensor*, kNumLinearRoles> tensors = {};

  const RawTensor* operator[](TensorRole role) const {
    return tensors[static_cast<std::size_t>(role)];
  }
  const RawTensor*& slot(TensorRole role) { return tensors[static_cast<std::size_t>(role)]; }
  /// weight or weight_packed.
  const RawTensor* payload() const;
  bool empty() const;
};

enum class Projection : std::uint8_t { kGate = 0, kUp = 1, kDown = 2 };
inline constexpr std::size_t kNumProjections = 3;
inline constexpr std::array<Projection, kNumProjections> kProjections = {
    Projection::kGate, Projection::kUp, Projection::kDown};
std::string_view projection_name(Projection projection);

using ExpertEntries = std::array<LinearEntries, kNumProjections>;

/// The routed experts of one layer as the file has them: one linear per projection of an expert, or
/// two stacks [E, ...] of all experts.
struct ExpertTensors {
  std::vector<ExpertEntries> experts;  // by id; gaps have empty entries
  LinearEntries stacked_gate_up;
  LinearEntries stacked_down;
  bool is_stacked() const { return !stacked_gate_up.empty() || !stacked_down.empty(); }
};

/// A module that is no routed expert.
struct ModuleTensors {
  std::string_view raw_path;  // as the checkpoint spells it
  LinearEntries entries;
};

/// All tensors of a checkpoint, by meaning. Points into the RawTensors.
struct TensorMap {
  std::map<std::int64_t, ExpertTensors> experts;            // by layer
  std::unordered_map<std::string, ModuleTensors> modules;   // canonical path -> its linear roles
  std::unordered_map<std::string, const RawTensor*> plain;  // canonical name -> tensor, no experts
  std::vector<const RawTensor*> unused;         // known and unused: vision towers, drafts, buffers
  std::map<std::string, LinearEntries> drafts;  // of these, the drafts: canonical path -> its roles
};

/// kCorruptData: two tensors under one canonical name (both are named), or an expert number out of
/// all bounds.
Result<TensorMap> build_tensor_map(const RawTensors& raw, std::int64_t num_hidden_layers);

/// The canonical name of a tensor or module that is no routed expert:
/// "model.layers.3.block_sparse_moe.gate.weight" -> "layers.3.mlp.gate.weight".
std::string canonical_name(std::string_view raw_name);

/// The last two components: "down_proj.weight_scale".
std::string_view short_name(const RawTensor& tensor);

}  // namespace halfbyte

#endif  // HALFBYTE_WEIGHTS_TENSOR_MAP_H_
