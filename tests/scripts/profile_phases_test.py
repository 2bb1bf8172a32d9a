# SPDX-License-Identifier: Apache-2.0
"""scripts/profile_phases.py counts each function once. Expected values: by hand, from the lines below."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import profile_phases

STEP = "???:halfbyte::EngineLoop::step() [/b/halfbyte]"
LINEAR = "???:halfbyte::(anonymous namespace)::CpuOps::linear(halfbyte::PreparedLinear const&) [/b/halfbyte]"
ANNOTATED = f"""
Ir
1,000 (100.0%)  PROGRAM TOTALS
1,000 (100.0%)  ???:std::thread::_State_impl<halfbyte::EngineLoop::EngineLoop()::{{lambda()#1}}>::_M_run() [/b/halfbyte]
1,000 (100.0%)  {STEP}
  700 (70.00%)  ???:halfbyte::MoeLayer::start(halfbyte::Routing const&) [/b/halfbyte]
  650 (65.00%)  ???:halfbyte::MoeLayer::Impl::run_experts(halfbyte::DispatchedTokens const&) [/b/halfbyte]
  200 (20.00%)  {LINEAR}
  190 (19.00%)  ???:void halfbyte::ThreadPool::parallel_for<halfbyte::(anonymous namespace)::CpuOps::linear(int)::{{lambda(long)#1}}&>(long) [/b/halfbyte]
  180 (18.00%)  ???:halfbyte::(anonymous namespace)::CpuOps::linear(int)::{{lambda(long)#1}}::operator()(long) const [/b/halfbyte]
   60 ( 6.00%)  /src/ops.cpp:halfbyte::(anonymous namespace)::CpuOps::rms_norm(halfbyte::Rows) [/b/halfbyte]
"""


class ProfilePhases(unittest.TestCase):
    def test_a_phase_is_its_functions_without_the_templates_and_lambdas_that_name_them(self):
        costs, total = profile_phases.phase_costs(profile_phases.inclusive_costs(ANNOTATED))
        self.assertEqual(total, 1000)
        self.assertEqual({phase: cost for phase, cost in costs.items() if cost},
                         {"experts": 650, "dispatch and combine": 50, "dense linears": 200, "norms": 60, "everything else": 40})

    def test_a_command_without_symbols_is_an_error(self):
        with self.assertRaisesRegex(profile_phases.ProfileError, "symbols"):
            profile_phases.phase_costs(profile_phases.inclusive_costs("1,000 (100.0%)  ???:0x1234 [/b/halfbyte]"))


if __name__ == "__main__":
    unittest.main()
