"""The dashboard: one static page that shows the pool live in a browser and talks to the HTTP door like any other."""
