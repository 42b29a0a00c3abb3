"""Settings of this folder's property tests."""

from hypothesis import settings

settings.register_profile("npukit", deadline=None)  # the machine may be busy
settings.load_profile("npukit")
