"""Eleven real posteriors with reference draws: how right is what ``isvi.fit`` says, with nothing tuned?"""
