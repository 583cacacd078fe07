import json
import unittest

from program import ProgramTest

SMALL = ["bench", "-p", "32", "-n", "4", "--repeats", "1", "--probe-mib", "16"]


class BenchTest(ProgramTest):
    def test_tells_rates_and_their_share_of_the_peaks(self):
        told = json.loads(self.output(*SMALL, "--json"))

        for rate in told["probes"].values():
            self.assertGreater(rate, 0)
        for phase in ("prefill", "decode"):
            self.assertGreater(told[phase]["tokens_s"], 0)
        self.assertAlmostEqual(told["decode"]["gb_s"], told["decode"]["tokens_s"] * told["bytes_per_token"] / 1e9)
        self.assertAlmostEqual(told["decode"]["share_of_read"], told["decode"]["gb_s"] / told["probes"]["read_gb_s"])

    def test_prints_a_table_for_people(self):
        text = self.output(*SMALL).decode()

        for word in ("threads", "probe", "prefill", "decode", "tokens/s", "GB/s"):
            self.assertIn(word, text)

    def test_refuses_more_tokens_than_the_context_holds(self):
        self.assert_refused(["bench", "--ctx", "64", "-p", "64"], "64")


if __name__ == "__main__":
    unittest.main()
