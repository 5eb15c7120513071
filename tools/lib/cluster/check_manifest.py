#!/usr/bin/env python3
"""Checks a PyTorchJob manifest without a cluster: check_manifest.py MANIFEST [--crd FILE]

With --crd it validates against the whole schema of the published custom resource definition, as the API server does, and refuses
unknown fields, as `kubectl apply --validate=strict` does. Get the definition from the operator's repository:
  kubeflow/training-operator, tag v1.9.0, manifests/base/crds/kubeflow.org_pytorchjobs.yaml

Without --crd it does the same against pytorchjob-fields.json beside this file: the fields that our manifest uses, with the types,
required fields and enumerations that the definition gives them. It then knows no other field, so it finds misspelt and misplaced
names and wrong types, and not whether a field that we do not use exists.

In both cases it also checks what the operator's code asks for and no schema says: one Master, and in every pod a container called
pytorch with a port called pytorchjob-port.
"""
import argparse
import json
import pathlib
import sys

import yaml

TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}


def violations(value, schema, path):
    """Yields one sentence for each place in which `value` is not what `schema` wants."""
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, (int, str)):
            yield f"{path}: must be a number or a string"
        return
    wanted = schema.get("type", "object")
    if not isinstance(value, TYPES[wanted]) or (wanted in ("integer", "number") and isinstance(value, bool)):
        yield f"{path}: must be of type {wanted}, is {value!r}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {', '.join(schema['enum'])}"
    if wanted == "array":
        for index, item in enumerate(value):
            yield from violations(item, schema["items"], f"{path}[{index}]")
    if wanted == "object":
        yield from violations_of_fields(value, schema, path)


def violations_of_fields(value, schema, path):
    for name in schema.get("required", []):
        if name not in value:
            yield f"{path}: {name} is required"
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties")
    free = schema.get("x-kubernetes-preserve-unknown-fields") or not (properties or others)
    for name, field in value.items():
        if name in properties:
            yield from violations(field, properties[name], f"{path}.{name}")
        elif others:
            yield from violations(field, others, f"{path}.{name}")
        elif not free:
            yield f"{path}.{name}: there is no such field"


def broken_habits(job):
    """What kubeflow/training-operator v1.9.0 relies on (pkg/controller.v1/pytorch/envvar.go, pkg/apis/kubeflow.org/v1)."""
    replicas = job["spec"]["pytorchReplicaSpecs"]
    for kind in replicas:
        if kind not in ("Master", "Worker"):
            yield f"pytorchReplicaSpecs.{kind}: the operator knows Master and Worker"
    if replicas.get("Master", {}).get("replicas") != 1:
        yield "pytorchReplicaSpecs.Master.replicas: there must be one master, which becomes rank 0"
    for kind, replica in replicas.items():
        containers = [c for c in replica["template"]["spec"]["containers"] if c["name"] == "pytorch"]
        ports = [p.get("name") for c in containers for p in c.get("ports", [])]
        if "pytorchjob-port" not in ports:
            yield f"pytorchReplicaSpecs.{kind}: no container called pytorch with a port called pytorchjob-port"


def schema_from(definition):
    """The schema of version v1, with the metadata that every object has."""
    text = yaml.safe_load(definition.read_text())
    version = next(v for v in text["spec"]["versions"] if v["name"] == "v1")
    schema = version["schema"]["openAPIV3Schema"]
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    return schema


def readable(text):
    path = pathlib.Path(text)
    try:
        path.open(encoding="utf-8").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot read {text}: {error.strerror}") from error
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=readable)
    parser.add_argument("--crd", type=readable)
    options = parser.parse_args()
    job = yaml.safe_load(options.manifest.read_text())
    own = pathlib.Path(__file__).with_name("pytorchjob-fields.json")
    schema = schema_from(options.crd) if options.crd else json.loads(own.read_text())
    wrong = list(violations(job, schema, job.get("kind", "?")))
    if not wrong and (job["apiVersion"], job["kind"]) != ("kubeflow.org/v1", "PyTorchJob"):
        wrong.append(f"{job['apiVersion']} {job['kind']}: not a PyTorchJob of kubeflow.org/v1")
    wrong += [] if wrong else broken_habits(job)
    for sentence in wrong:
        print(f"{options.manifest}: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
