"""Lists of named, fingerprinted jobs, worked here or on a Dask cluster: the one place where commands spread their work.

    job         what a job is, and what comes of it
    processes   fresh processes of this machine, reused from job to job
    alone       a process for one job, killed when it is out of patience
    cluster     the workers of a Dask cluster
    store       results on the disk, one file a job
    plain       values as arrays and JSON, so that no file is ever unpickled
    place       where a result was computed
    run         the door: `run(work, jobs, engine, store)`

Seeds belong to jobs, never to workers; whoever reads results sorts them by job. So neither the number of workers nor
their speed changes a digit or an order.
"""
