/*-------------------------------------------------------------------------
 * room: any
 *
 * version.h
 *	  Versions of the library and of the extension's SQL objects.
 *
 * A release has version X.Y.Z: that of the library, PAPPLY_VERSION, which the
 * Makefile takes from META.json.  Its SQL objects have version X.Y.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_VERSION_H
#define PAPPLY_VERSION_H

/* The version of the extension in the current database; "none" if it is not there. */
extern const char *papply_version_installed(void);

/* errhint() of what to do if SQL objects of this version do not match the library. */
extern int	papply_version_hint(const char *sql_version);

#endif							/* PAPPLY_VERSION_H */
