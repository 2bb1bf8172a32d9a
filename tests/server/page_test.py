# SPDX-License-Identifier: Apache-2.0
"""The chat page in a headless Chromium: page_test.py COMMAND MODEL [PROBLEMS [PICTURES]].

Exits with 77 (skipped) where there is none. PICTURES is a folder for screenshots.
"""

import os
import sys
import unittest

from browser import Browser, find_chromium
from serving import MODEL_NAME, Server

CHROMIUM = find_chromium()
if CHROMIUM is None:
    print("skipped: no chromium is installed")
    sys.exit(77)

COMMAND, MODEL = sys.argv[1:3]
PICTURES = sys.argv[4] if len(sys.argv) > 4 else None
KEY = "secret"


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(COMMAND, MODEL, "--api-key", KEY).ready()
        cls.browser = Browser(CHROMIUM)
        cls.url = f"http://127.0.0.1:{cls.server.port}/"

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.server.stop()

    def setUp(self):
        self.browser.open(self.url)
        self.browser.wait_for("document.readyState === 'complete' && typeof watchLoad === 'function'")

    def tearDown(self):
        outside = [url for url in self.browser.requests if not url.startswith((self.url, "data:", "about:"))]
        self.assertEqual(outside, [])  # it asks nobody else
        refusals = ("401", "400")  # that tests provoke; a blocked script or style would be another
        self.assertEqual([text for text in self.browser.complaints if not any(code in text for code in refusals)], [])

    def picture(self, name):
        if PICTURES:
            self.browser.save_picture(os.path.join(PICTURES, f"{name}.png"))

    def give_key(self):
        self.browser.run(f"$('key').value = '{KEY}'; $('key').dispatchEvent(new Event('change'))")
        self.browser.wait_for("$('model').options.length > 0")

    def ask(self, text):
        self.browser.run(f"$('input').value = {text!r}; $('form').requestSubmit()")

    def test_asks_for_the_key_and_then_names_the_model(self):
        self.browser.wait_for("$('speed').textContent.includes('API key')")
        self.picture("without_key")
        self.give_key()
        self.assertEqual(self.browser.run("$('model').value"), MODEL_NAME)
        self.assertEqual(self.browser.run("document.title"), f"{MODEL_NAME} - halfbyte")

    def test_streams_an_answer_and_shows_its_speed_and_the_load_of_experts(self):
        self.give_key()
        self.browser.run("""window.pieces = 0;
            new MutationObserver((records) => window.pieces += records.filter((r) => r.addedNodes.length).length)
                .observe($('messages'), {subtree: true, childList: true})""")
        self.ask("60 balloons are split evenly between 12 children. How many balloons does each child have?")
        self.browser.wait_for("!running && document.querySelectorAll('.message').length === 2")
        self.assertIn("####", self.browser.run("document.querySelectorAll('.message')[1].textContent"))
        # Each piece is an append, however many of them the browser reports at a time; a few are the boxes.
        self.assertGreater(self.browser.run("window.pieces"), 8)
        speed = self.browser.run("$('speed').textContent")
        self.assertRegex(speed, r"^[0-9.]+ tokens/s, first after \d+ ms, \d+ tokens$")
        self.browser.wait_for("$('layers').tBodies[0].rows.length > 0 && shown.some((layer) => layer.steps > 0)")
        layers = self.browser.run("shown.map((layer) => [layer.layer, layer.tokens.length])")
        self.assertEqual(len(layers), self.browser.run("$('layers').tBodies[0].rows.length"))
        painted = self.browser.run("""new Set(Array.from($('map').getContext('2d')
            .getImageData(0, 0, $('map').width, $('map').height).data)).size""")
        self.assertGreater(painted, 4)  # experts differ
        self.picture("answer")

    def test_stops_an_answer(self):
        self.give_key()
        self.ask("Count to one million.")
        self.browser.wait_for("running && document.querySelectorAll('.message').length === 2")
        self.browser.run("$('stop').click()")
        self.browser.wait_for("!running")
        self.assertEqual(self.server.wait_until_idle()["halfbyte:num_running_reqs"], 0.0)
        self.browser.run("$('clear').click()")
        self.assertEqual(self.browser.run("document.querySelectorAll('.message').length"), 0)

    def test_shows_what_the_server_refuses(self):
        self.give_key()
        self.ask("word " * 2000)
        self.assertIn("context", self.browser.wait_for("document.querySelector('.error')?.textContent"))
        self.picture("refused")

    def test_takes_what_is_said_as_text(self):
        self.give_key()
        self.ask("<img id=planted src=x onerror=alert(1)>")
        self.browser.wait_for("!running && document.querySelectorAll('.message').length === 2")
        self.assertIsNone(self.browser.run("document.getElementById('planted')"))

    def test_fits_a_small_screen(self):
        self.browser.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
        self.give_key()
        self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), 390)
        self.picture("small")
        self.browser.call("Emulation.clearDeviceMetricsOverride")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
