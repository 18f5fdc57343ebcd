"""The local stack: real Ray on this machine, one raylet a simulated TPU host."""
