/* A set of ids below 128: of weights, taps or streams. */
#ifndef PLUMB_BASE_ID_SET_H
#define PLUMB_BASE_ID_SET_H

__extension__ typedef unsigned __int128 id_set;

#define ID_SET(id) ((id_set)1 << (id))
#define ALL_IDS (~(id_set)0)

#endif
