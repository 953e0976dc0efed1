"""What every package rests on, and no user needs: arrays, tables, files, processes."""
