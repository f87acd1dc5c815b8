"""`cotenant dashboard`: the tenants of a segment on a page in a browser.

jobs_shown  a picture of cotenant.top's model as the page gets it, in JSON
history     an hour of shares, in bounded memory
feed        looks at the segment, again and again, for everybody who watches
access      who may ask: the token, the cookie, Host and Origin
app         what is served, and what the page's buttons do
server      the socket and uvicorn
static/     the page: no build step, nothing from elsewhere
"""
