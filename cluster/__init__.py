"""Workers on other machines: a node program on each starts them and carries their bytes over one link."""
