// SPDX-License-Identifier: Apache-2.0
//
// What requests hold their answers to.
#ifndef HALFBYTE_SERVER_CONSTRAINT_FIELDS_H_
#define HALFBYTE_SERVER_CONSTRAINT_FIELDS_H_

#include <optional>
#include <set>
#include <string>

#include "server/generation_request.h"

namespace halfbyte::server {

/// response_format, regex, ebnf, structured_outputs and structural_tag: at most one of them, which
/// becomes `request.grammar`.
void read_constraint(const Json& body,
                     const RequestScope& scope,
                     GenerationRequest& request,
                     std::optional<ApiError>& error);

struct ToolChoice {
  bool hides_tools = false;
  std::optional<std::string> forced_tool = {};  // as Conversation's
};
/// `names`: of the tools.
ToolChoice read_tool_choice(const Json& body,
                            const std::set<std::string>& names,
                            std::optional<ApiError>& error);

/// Makes `request.grammar` of the tools in `body`: calls in the model's format, of one tool or, if
/// `forced_tool` is empty, of any.
void force_tool_calls(const Json& body,
                      const std::string& forced_tool,
                      const RequestScope& scope,
                      GenerationRequest& request,
                      std::optional<ApiError>& error);

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_CONSTRAINT_FIELDS_H_
