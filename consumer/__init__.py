"""The daemon: what a gateway announces becomes object records for the programs that write tapes."""
