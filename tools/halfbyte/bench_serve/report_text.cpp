// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "bench_serve/report.h"

namespace halfbyte::tool {
namespace {

using nlohmann::ordered_json;

// Above it, pieces of several tokens are no accident of a character or two.
constexpr double kSeveralTokens = 1.05;

std::string notes(const ServeReport& report) {
  std::string text;
  if (report.tokens_per_chunk > kSeveralTokens) {
    text += fmt::format("  an event has {:.2f} tokens: ITL is between events, not tokens\n",
                        report.tokens_per_chunk);
  }
  if (!report.has_usage) text += "  the server gives no usage: events were counted for tokens\n";
  if (report.num_prompts_counted_otherwise > 0) {
    text += fmt::format("  {} prompts have other token counts in the server's usage than here\n",
                        report.num_prompts_counted_otherwise);
  }
  if (report.local_output_tokens >= 0 && report.local_output_tokens != report.output_tokens) {
    text +=
        fmt::format("  the tokenizer here counts {} output tokens\n", report.local_output_tokens);
  }
  if (report.client_bound) {
    text += fmt::format(
        "  CLIENT-BOUND: this client was late by {:.1f} ms (p99) and took {:.0f} % of a core; "
        "measure from a machine that is less busy, or send less\n",
        report.lag_p99_ms, 100.0 * report.cpu_share);
  }
  if (report.num_failed > 0) text += fmt::format("  first failure: {}\n", report.first_error);
  return text;
}

}  // namespace

ordered_json to_json(const ServeReport& report) {
  return {{"successful", report.num_successful},
          {"failed", report.num_failed},
          {"aborted", report.num_aborted},
          {"first_error", report.first_error},
          {"duration_s", rounded(report.duration_s)},
          {"requests_per_s", rounded(report.per_second(report.num_successful))},
          {"input_tokens", report.input_tokens},
          {"cached_tokens", report.cached_tokens},
          {"output_tokens", report.output_tokens},
          {"input_tokens_per_s", rounded(report.per_second(report.input_tokens))},
          {"output_tokens_per_s", rounded(report.per_second(report.output_tokens))},
          {"total_tokens_per_s",
           rounded(report.per_second(report.input_tokens + report.output_tokens))},
          {"concurrency_max", report.max_under_way},
          {"concurrency_mean", rounded(report.mean_under_way)},
          {"ttft_ms", to_json(report.ttft)},
          {"tpot_ms", to_json(report.tpot)},
          {"itl_ms", to_json(report.itl)},
          {"e2e_ms", to_json(report.e2e)},
          {"tokens_per_event", rounded(report.tokens_per_chunk)},
          {"goodput_requests_per_s", rounded(report.per_second(report.num_good))},
          {"has_usage", report.has_usage},
          {"prompts_counted_otherwise", report.num_prompts_counted_otherwise},
          {"local_output_tokens", report.local_output_tokens},
          {"client_lag_p99_ms", rounded(report.lag_p99_ms)},
          {"client_lag_max_ms", rounded(report.lag_max_ms)},
          {"client_cpu_share", rounded(report.cpu_share)},
          {"client_bound", report.client_bound}};
}

std::string to_text(const ServeReport& report, bool has_goodput) {
  std::string text =
      fmt::format("  {} successful, {} failed, {} aborted in {:.2f} s: {:.2f} requests/s\n",
                  report.num_successful, report.num_failed, report.num_aborted, report.duration_s,
                  report.per_second(report.num_successful));
  text +=
      fmt::format("  tokens: {} in ({} cached), {} out; {:.1f} in/s, {:.1f} out/s, {:.1f}/s\n",
                  report.input_tokens, report.cached_tokens, report.output_tokens,
                  report.per_second(report.input_tokens), report.per_second(report.output_tokens),
                  report.per_second(report.input_tokens + report.output_tokens));
  text += fmt::format("  under way: {:.1f} on average, {} at most\n", report.mean_under_way,
                      report.max_under_way);
  if (has_goodput) {
    text += fmt::format("  goodput: {:.2f} requests/s within the limits, {} of {}\n",
                        report.per_second(report.num_good), report.num_good, report.num_successful);
  }
  text += summary_header("ms") + summary_row("TTFT", report.ttft) +
          summary_row("TPOT", report.tpot) + summary_row("ITL", report.itl) +
          summary_row("E2E", report.e2e);
  return text + notes(report);
}

}  // namespace halfbyte::tool
