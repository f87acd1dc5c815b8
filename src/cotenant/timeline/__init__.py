"""`cotenant timeline`: what all tenants did, moment by moment, in one picture (docs/timelines.md).

rings        what a tenant has noted (native/tenant/timeline.h)
collecting   asks tenants to note, and holds what they noted until the picture is drawn
drawing      the picture, in Chrome's JSON trace format
recordings   the recordings that go on in the background
"""
