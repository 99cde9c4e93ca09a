/*-------------------------------------------------------------------------
 * replication_command.h
 *	  Read a command of the replication protocol.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_REPLICATION_COMMAND_H
#define PAPPLY_REPLICATION_COMMAND_H

/*
 * Is this a complete command START_REPLICATION of that logical slot, with the
 * option origin 'none'?
 */
extern bool papply_replication_command_omits_origins(const char *command, const char *slot_name);

#endif							/* PAPPLY_REPLICATION_COMMAND_H */
