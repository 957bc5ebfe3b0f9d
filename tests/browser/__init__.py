"""The console in a browser: Chromium, driven by Playwright, against agents as processes."""
