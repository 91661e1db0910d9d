"""Who may do what: tenants, projects, keys, models, prices and instances.

Every function takes an open transaction of `Database.admin()` (or `tenant()` where it says so) and leaves the commit to the caller.
"""
