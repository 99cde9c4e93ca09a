# shellcheck shell=bash
# coalesce.sh - the common option --coalesce of the programs that source this after
# lib.sh: the publisher preloads the library, which sends messages together
# (src/sender/coalesce.c).
#
# The base of all ratios remains "native" as PostgreSQL sends, with
# parallel_apply.coalesce_messages = off.  It is on for a further configuration,
# "native gathered" (0g in place of a number of writers), and for all writers.

COMMON_USAGE+=$'\n  --coalesce            the publisher coalesces messages for "native gathered" and the writers'

# common_option calls this.
choose_coalesce()
{
	COALESCES=1
	NATIVES=${NATIVES:+0 0g}
	PUBLISHER_SETTINGS+=("shared_preload_libraries = 'parallel_apply'" "parallel_apply.coalesce_messages = off")
}

# set_coalescing WRITERS|0g: for walsenders that begin from here on
set_coalescing()
{
	local setting=on start_s=$SECONDS

	[[ $1 != 0 ]] || setting=off
	ask publisher "ALTER SYSTEM SET parallel_apply.coalesce_messages = $setting"
	ask publisher "SELECT pg_reload_conf()"
	# A new session has the setting that a new walsender would have.
	until [[ $(sql publisher -c "SHOW parallel_apply.coalesce_messages") == "$setting" ]]; do
		(( SECONDS - start_s < STALLED_AFTER_S )) || die "the publisher does not take its new settings"
	done
}
