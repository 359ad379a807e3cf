"""Rules of rewards beside those that first specs use: one file each, chosen by `rule:`."""
