# Hotbed for what needs no testbed: plans, the ground sim, reports and bundles. Results go to the folder
# that is mounted as /results:
#     docker build -t hotbed .
#     docker run --rm -v "$PWD:/results" hotbed run dlr-quick --ground sim
FROM debian:trixie
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates git python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY . /opt/hotbed
# The clone's history stays: it names the commit in the record of each run.
RUN /opt/hotbed/tools/setup.sh notebook && rm -rf /root/.cache /root/go
ENV PATH=/opt/hotbed/.venv/bin:$PATH
WORKDIR /results
ENTRYPOINT ["hotbed"]
