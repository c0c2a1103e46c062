"""A headless Chromium, spoken to over a pipe (its DevTools protocol): nothing to download, no port."""

import itertools
import json
import os
import select
import shutil
import subprocess
import time

PROGRAMS = ["chromium-headless-shell", "chromium-shell", "chromium"]
TIMEOUT_S = 60


class Browser:
    def __init__(self, profile):
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        assert program, "no headless Chromium: make deps installs one"
        to_read, self.to = os.pipe()
        self.source, to_write = os.pipe()
        self.process = subprocess.Popen(
            # the browser takes descriptors 3 and 4; it may not have a sandbox as root
            ["/bin/bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "bash", program,
             "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            pass_fds=[to_read, to_write], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.numbers = itertools.count(1)
        self.unread = b""
        self.said = []  # what pages complain of

    def close(self):
        os.close(self.to)
        os.close(self.source)
        self.process.kill()
        self.process.wait()

    def read(self):
        end = time.monotonic() + TIMEOUT_S
        while b"\0" not in self.unread:
            assert select.select([self.source], [], [], end - time.monotonic())[0], "no answer"
            more = os.read(self.source, 1 << 20)
            assert more, "the browser has ended"
            self.unread += more
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **params):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while (answer := self.read()).get("id") != number:
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.said.append(json.dumps(answer["params"]))
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, url):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        page = Page(self, self.call("Target.attachToTarget", targetId=target, flatten=True))
        page.call("Runtime.enable")
        page.call("Log.enable")
        page.call("Page.enable")
        page.call("Page.navigate", url=url)
        return page


class Page:
    def __init__(self, browser, attached):
        self.browser = browser
        self.session = attached["sessionId"]

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def eval(self, script):
        """The value of a JavaScript expression, or of what it promises."""
        result = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, script):
        """Waits until the expression is true of the page."""
        end = time.monotonic() + TIMEOUT_S
        page = "document.body ? document.body.innerText : ''"
        while not self.eval(f"!!(document.body && ({script}))"):
            assert time.monotonic() < end, (script, self.eval(page), self.browser.said)
            self.eval("new Promise((done) => setTimeout(done, 50))")
