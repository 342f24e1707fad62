"""Acting on its own: system events, wake, beats, cron; the gateway is seen only through ports declared here."""
