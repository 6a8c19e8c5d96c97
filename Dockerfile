# Regard on a CPU:
#   docker build -t regard .
#   docker run --rm -v "$PWD:/work" regard train translate --out runs/demo
#   docker run --rm -v "$PWD:/work" -p 127.0.0.1:8000:8000 regard serve runs/demo --host 0.0.0.0 --allow-host localhost
FROM python:3.11-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN python -m venv /opt/regard && PIP="/opt/regard/bin/pip install --no-cache-dir" \
 && LOCKED="$PIP --require-hashes --no-deps --no-build-isolation --use-pep517 --requirement" \
 && $LOCKED locks/first.txt && $PIP torch==2.13.0 && $LOCKED locks/demo.txt \
 && $PIP --constraint constraints.txt --no-build-isolation '.[demo,text,vision,serve]'

FROM python:3.11-slim
# The compiled kernels use several threads by OpenMP.
RUN apt-get update && apt-get install --yes --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home user
COPY --from=build /opt/regard /opt/regard
ENV PATH=/opt/regard/bin:$PATH
USER user
WORKDIR /work
ENTRYPOINT ["regard"]
CMD ["--help"]
