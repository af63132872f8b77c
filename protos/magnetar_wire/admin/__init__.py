"""The table of admin calls: their messages, who carries them out, their Python methods, and their paths on HTTP.

call.py             the columns: what a row declares
calls.py, rows/     the rows, a file per subject
policies.py         the table of policies of namespaces and topics; policy_routes.py: the routes made from it;
                    policy_effects.py: what each replaces, for the guide
http/               the column `routes`: route.py, route_table.py
json/               parts.py: how a part of a message and a JSON value correspond; and the parts of each subject
"""
