/* All that is used of it is in posix.h, which the Makefile includes in front of every source. */
