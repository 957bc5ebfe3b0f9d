# The S3 server of compose.yaml: MinIO (AGPL-3.0), the version that Frazil's tests run. It is built from its sources,
# since nobody publishes images of it any more.
FROM golang:1.26-alpine AS build
RUN CGO_ENABLED=0 go install -trimpath -ldflags='-s -w' \
    github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c

FROM alpine:3.23
RUN adduser -D -u 10001 minio && mkdir /data && chown minio /data
COPY --from=build /go/bin/minio /usr/local/bin/minio
USER minio
ENTRYPOINT ["minio"]
