# The server, as a user without rights. --init reaps the processes that tools leave behind.
#
#     docker build -t toolcrib .
#     docker run --init -p 127.0.0.1:8642:8642 -v crib:/data --name crib toolcrib
#     docker exec crib toolcrib keys add alice
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE CHANGELOG.md ./
COPY src src
RUN python -m venv /opt/toolcrib && /opt/toolcrib/bin/pip install --no-cache-dir -c constraints.txt ".[serve,sandbox]"

FROM python:3.13-slim
RUN useradd --uid 10001 --create-home toolcrib && install -d -o toolcrib -g toolcrib -m 0700 /data
COPY --from=build /opt/toolcrib /opt/toolcrib
# Others reach a container, so nobody enters without a key.
ENV PATH=/opt/toolcrib/bin:$PATH XDG_DATA_HOME=/data XDG_CACHE_HOME=/data/cache \
    TOOLCRIB_STORE_URL=/data/toolcrib/store.db \
    TOOLCRIB_SERVER_HOST=0.0.0.0 TOOLCRIB_SERVER_KEYS=true
WORKDIR /tools
USER toolcrib
VOLUME /data
EXPOSE 8642
HEALTHCHECK CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8642/livez', timeout=5)"]
ENTRYPOINT ["toolcrib"]
CMD ["serve", "toolcrib.demo"]
