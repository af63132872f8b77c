# The image of a Spark job that reads from Magnetar: PySpark, Java and spark_job.py.
#
#   docker build -f deploy/spark_job.Dockerfile -t magnetar-spark-job .        # in the project's root
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

# The first lines are those of Dockerfile, so that their layers are reused.
FROM ${PYTHON_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python3 -m venv /opt/magnetar
ENV PATH=/opt/magnetar/bin:$PATH
COPY pyproject.toml deploy/image_requirements.py ./
RUN python3 image_requirements.py server > requirements.txt && pip install --quiet -r requirements.txt
RUN python3 image_requirements.py spark java > requirements.txt && pip install --quiet -r requirements.txt
COPY . .
RUN pip install --quiet --no-deps . && pip uninstall --quiet --yes setuptools pip
# A JAVA_HOME that Spark's launcher can use: see deploy/magnetar_cli/local_java.py.
RUN python3 -c "from pathlib import Path; from magnetar_cli.local_java import java_home_for_spark as home; home(Path('/opt/magnetar/java'))"

FROM ${PYTHON_IMAGE}
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Magnetar's Spark job" \
      org.opencontainers.image.description="Counts a topic's messages with Spark's structured streaming" \
      org.opencontainers.image.revision="${REVISION}"
RUN groupadd --gid 10001 magnetar \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/magnetar --shell /usr/sbin/nologin magnetar \
 && mkdir -p /var/lib/magnetar && chown magnetar:magnetar /var/lib/magnetar
COPY --from=build /opt/magnetar /opt/magnetar
COPY deploy/spark_job.py /opt/magnetar/spark_job.py
ENV PATH=/opt/magnetar/bin:$PATH PYTHONUNBUFFERED=1 JAVA_HOME=/opt/magnetar/java PYSPARK_PYTHON=python3
WORKDIR /var/lib/magnetar
USER magnetar
ENTRYPOINT ["python3", "/opt/magnetar/spark_job.py"]
CMD ["--help"]
