# SPDX-License-Identifier: Apache-2.0
"""Pictures of the chat page for docs/images, by a headless Chromium: take_pictures.py COMMAND MODEL FOLDER."""

import os
import sys

from browser import Browser, find_chromium
from serving import Server

COMMAND, MODEL, FOLDER = sys.argv[1:4]
QUESTION = "60 balloons are split evenly between 12 children. How many balloons does each child have?"
SIZE = {"width": 1000, "height": 520}
# The shipped model's answers are over before a picture is taken: this one waits in the page after so many events.
HOLD = """
readEvents = ((read) => (response, take) => {
  const decoder = new TextDecoder(), encoder = new TextEncoder();
  let events = 0;
  const hold = new TransformStream({transform: async (piece, out) => {
    for (const event of decoder.decode(piece, {stream: true}).split(/(?<=\\n\\n)/)) {
      if (++events === 24) await new Promise((go) => { window.goOn = go; });
      out.enqueue(encoder.encode(event));
    }
  }});
  return read({body: response.body.pipeThrough(hold)}, take);
})(readEvents);
"""


def take_pictures(browser, url):
    browser.call("Emulation.setDeviceMetricsOverride", **SIZE, deviceScaleFactor=1, mobile=False)
    browser.open(url)
    browser.wait_for("document.readyState === 'complete' && $('model').options.length > 0")
    browser.save_picture(os.path.join(FOLDER, "page_empty.png"))
    browser.run(HOLD)
    browser.run(f"$('temperature').value = 0; $('input').value = {QUESTION!r}; $('form').requestSubmit()")
    browser.wait_for("window.goOn && shown && shown.some((layer) => layer.steps > 10)")
    browser.save_picture(os.path.join(FOLDER, "page_answer.png"))


def main():
    chromium = find_chromium()
    if chromium is None:
        sys.exit("no chromium is installed")
    os.makedirs(FOLDER, exist_ok=True)
    server = Server(COMMAND, MODEL).ready()
    browser = Browser(chromium)
    try:
        take_pictures(browser, f"http://127.0.0.1:{server.port}/")
    finally:
        browser.close()
        server.stop()


if __name__ == "__main__":
    main()
