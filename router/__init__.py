"""From where a message came to whose it is: session key, agent, role, workspace. Pure but for one directory."""
