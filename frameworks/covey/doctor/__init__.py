"""`covey doctor`: the obstacles of a job, found before it is started.

facts.py     the properties of a host, gathered on it by its agent
cgroups.py   the limits of its control groups
passage.py   connections and large packets from one host to others
visit.py     the conversation with the agents of all hosts
check.py     a check as a value
checks.py    the checks by the answers of the hosts; those of a single host: host_checks.py
table.py     the checks as lines, and as JSON

Gathering decides nothing, and checks gather nothing. Internal.
"""
