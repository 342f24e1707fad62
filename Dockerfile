# The supervisor in a container: a user of its own, everything that lasts in the volume /data. docs/operate/docker.md explains it.
FROM python:3.13-slim AS build
COPY requirements.lock /src/
RUN python -m venv /opt/pool \
    && /opt/pool/bin/pip install --no-cache-dir --require-hashes --only-binary :all: --requirement /src/requirements.lock
COPY . /src
RUN /opt/pool/bin/pip install --no-cache-dir --no-deps --no-build-isolation /src

FROM python:3.13-slim
COPY --from=build /opt/pool /opt/pool
# The home of its user is the volume: settings, transcripts and logins of agents all lie there.
RUN useradd --uid 10001 --user-group --home-dir /data --no-create-home pool \
    && install --directory --owner=pool --group=pool --mode=700 /data
ENV PATH=/opt/pool/bin:$PATH HOME=/data
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8765
HEALTHCHECK --start-period=10s CMD ["pool", "status", "--json"]
ENTRYPOINT ["pool"]
CMD ["run"]
