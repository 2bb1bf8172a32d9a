// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_SERVER_BLOCK_WRITER_H_
#define HALFBYTE_SERVER_BLOCK_WRITER_H_

#include <string>
#include <vector>

#include "server/protocol.h"

namespace halfbyte::server {

/// For formats whose answer is one list of blocks: reasoning, text and calls in the order in which
/// they come, one open at a time. The whole answer is made from the same blocks as a stream.
class BlockWriter : public AnswerWriter {
 public:
  using AnswerWriter::AnswerWriter;
  std::string finish_event(const Place& place, const Tokens& tokens) final;
  std::string end_events(const Usage&) final { return {}; }
  std::string response(const std::vector<Choice>& choices,
                       const std::vector<AnswerParts>& answers,
                       const Usage& usage) final;

 protected:
  enum class BlockKind { kReasoning = 0, kText = 1, kCall = 2 };
  struct Block {
    BlockKind kind = BlockKind::kText;
    std::string text = {};  // of a call its arguments
    std::string call_id = {};
    std::string name = {};
    Json logprobs = Json::array();  // of text: of the tokens since the last one
    bool is_cut = false;            // the answer ended inside it, and was not at its end
  };
  const std::vector<Block>& blocks() const { return blocks_; }

 private:
  // A list of those of tokens: empty where nothing shows them.
  virtual Json logprobs_of(const Tokens&) const { return Json::array(); }
  // Events of the last block, or of one that has added `text` and `logprobs` to it.
  virtual std::string open_event(const Block& block) = 0;
  virtual std::string more_event(const Block& block,
                                 const std::string& text,
                                 const Json& logprobs) = 0;
  virtual std::string close_event(const Block& block) = 0;
  // All blocks are closed.
  virtual std::string final_events(const Place& place) = 0;
  virtual Json whole(const Place& place) = 0;

  std::string reasoning_event(const Place& place, const std::string& text, Tokens& tokens) final;
  std::string text_event(const Place& place, const std::string& text, Tokens& tokens) final;
  std::string call_event(const Place& place, const CallDelta& call, Tokens& tokens) final;
  std::string extend(BlockKind kind, const std::string& text, const Tokens& tokens);
  std::string open(Block block);
  std::string close_last();

  std::vector<Block> blocks_;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_BLOCK_WRITER_H_
