"""The figures for Prometheus.

families    FIGURES as metric families
collector   reads the segment at each scrape and fills them
containers  the pod, namespace and container that a process is in
server      /metrics over HTTP
page        the table of docs/metrics.md
"""
