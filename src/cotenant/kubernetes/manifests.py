"""All objects of an installation. `cotenant kubernetes install` and the Helm chart are made of the same ones.

Nothing runs privileged but the agent, which has to reach the GPUs and the host's shared memory. The agent may
write ResourceSlices of its own node and events of its own only: RBAC cannot say that, admission policies do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cotenant import __version__, classes
from cotenant.kubernetes import names
from cotenant.kubernetes.parameters import CLASS_KIND
from cotenant.kubernetes.webhook import matching
from cotenant.launch.driver import DRIVER_ROOT

Object = dict[str, Any]

# Above pods without a class for production, below them for opportunistic: what is evicted first.
PRIORITIES = {"production": 1_000_000, "standard": 0, "opportunistic": -1_000_000}
METRICS_PORT, WEBHOOK_PORT = 9402, 8443
WEBHOOK = "cotenant-webhook"
PLACER = "cotenant-placer"
STATE = "/var/lib/cotenant"
KUBELET = "/var/lib/kubelet"
CDI = "/var/run/cdi"
SEGMENT = "/dev/shm/cotenant.shared"


@dataclass(frozen=True)
class Settings:
    namespace: str = names.NAMESPACE
    image: str = f"cotenant:{__version__}"
    policy: str = "guard"
    placer: str = ""  # a placement policy; none: no placer
    # base64 of PEM files, as Secrets and webhook configurations have them
    certificate: str = ""
    key: str = ""
    authority: str = ""
    digest: str = ""  # of the certificate


def everything(settings: Settings) -> list[Object]:
    """In the order in which they can be created."""
    return [
        namespace(settings),
        *device_classes(),
        *priority_classes(),
        *agent_rights(settings),
        *webhook_rights(settings),
        *agent(settings),
        *(placer(settings) if settings.placer else ()),
        *webhook(settings),
    ]


def labelled(
    kind: str, version: str, name: str, namespace: str = "", component: str = "", **fields: Any
) -> Object:
    metadata: Object = {"name": name, "labels": dict(names.LABELS)}
    if component:
        metadata["labels"]["app.kubernetes.io/component"] = component
    if namespace:
        metadata["namespace"] = namespace
    # Parts that were made once and used twice become two: YAML would have names for them.
    made: Object = json.loads(
        json.dumps({"apiVersion": version, "kind": kind, "metadata": metadata, **fields})
    )
    return made


def namespace(settings: Settings) -> Object:
    made = labelled("Namespace", "v1", settings.namespace)
    # The agent mounts folders of the host.
    made["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "privileged"
    return made


def device_classes() -> list[Object]:
    return [
        labelled(
            "DeviceClass",
            "resource.k8s.io/v1",
            names.device_class(name),
            spec={
                "selectors": [{"cel": {"expression": f'device.driver == "{names.DRIVER}"'}}],
                "config": [
                    {
                        "opaque": {
                            "driver": names.DRIVER,
                            "parameters": {
                                "apiVersion": names.API_VERSION,
                                "kind": CLASS_KIND,
                                "class": name,
                            },
                        }
                    }
                ],
            },
        )
        for name in classes.NAMES
    ]


def priority_classes() -> list[Object]:
    return [
        labelled(
            "PriorityClass",
            "scheduling.k8s.io/v1",
            names.priority_class(name),
            value=PRIORITIES[name],
            preemptionPolicy="Never" if name == "opportunistic" else "PreemptLowerPriority",
            description=f"Pods whose GPU work is {name}.",
        )
        for name in classes.NAMES
    ]


def rule(groups: Sequence[str], resources: Sequence[str], verbs: Sequence[str]) -> Object:
    return {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs)}


def rights(name: str, component: str, settings: Settings, rules: Sequence[Object]) -> list[Object]:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": settings.namespace}
    return [
        labelled("ServiceAccount", "v1", name, settings.namespace, component),
        labelled("ClusterRole", "rbac.authorization.k8s.io/v1", name, "", component, rules=list(rules)),
        labelled(
            "ClusterRoleBinding",
            "rbac.authorization.k8s.io/v1",
            name,
            "",
            component,
            roleRef=reference,
            subjects=[subject],
        ),
    ]


def agent_rights(settings: Settings) -> list[Object]:
    name = "cotenant-agent"
    slices = rule(["resource.k8s.io"], ["resourceslices"], ["get", "create", "patch"])
    claims = rule(["resource.k8s.io"], ["resourceclaims"], ["get"])
    # Those of its node: their annotations, and who is evicted.
    pods = rule([""], ["pods"], ["get", "list", "watch"])
    events = rule([""], ["events"], ["create", "patch"])
    rules = [slices, claims, rule([""], ["nodes"], ["get"]), pods, events]
    own_node = "authentication.kubernetes.io/node-name"
    slices_policy = agent_policy(
        settings,
        "own-node",
        ("resource.k8s.io", "resourceslices", ["CREATE", "UPDATE"]),
        {"node": f'request.userInfo.extra[?"{own_node}"][0].orValue("")'},
        'variables.node != "" && object.spec.?nodeName.orValue("") == variables.node'
        f' && object.spec.driver == "{names.DRIVER}"',
        "an agent writes the ResourceSlices of its own node and driver only",
    )
    events_policy = agent_policy(
        settings,
        "own-events",
        ("", "events", ["CREATE", "UPDATE"]),
        {"written": "oldObject == null ? [object] : [object, oldObject]"},
        f'variables.written.all(one, one.?reportingComponent.orValue("") == "{names.DRIVER}")',
        "an agent writes its own events only",
    )
    return [*rights(name, "agent", settings, rules), *slices_policy, *events_policy]


def agent_policy(
    settings: Settings,
    what: str,
    about: tuple[str, str, list[str]],
    variables: dict[str, str],
    expression: str,
    message: str,
) -> list[Object]:
    """What RBAC cannot say of the agent's account."""
    group, resource, operations = about
    name, version = f"cotenant-agent-{what}", "admissionregistration.k8s.io/v1"
    user = f"system:serviceaccount:{settings.namespace}:cotenant-agent"
    matched = {"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": [resource]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [matched]},
        "matchConditions": [{"name": "is-agent", "expression": f'request.userInfo.username == "{user}"'}],
        "variables": [{"name": key, "expression": one} for key, one in variables.items()],
        "validations": [{"expression": expression, "message": message}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return [
        labelled("ValidatingAdmissionPolicy", version, name, "", "agent", spec=spec),
        labelled("ValidatingAdmissionPolicyBinding", version, name, "", "agent", spec=binding),
    ]


def webhook_rights(settings: Settings) -> list[Object]:
    verbs = ["create", "get"] if settings.placer else ["create"]
    templates = rule(["resource.k8s.io"], ["resourceclaimtemplates"], verbs)
    slices = rule(["resource.k8s.io"], ["resourceslices"], ["list"])  # how large GPUs are
    return rights(WEBHOOK, "webhook", settings, [templates, slices])


def pod_labels(component: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "cotenant", "app.kubernetes.io/component": component}


def once_there(subcommand: str) -> list[str]:
    """The agent makes the segment, for all users. Without one, the daemon would make one for its own user, and the
    metrics would end."""
    return ["sh", "-c", f'until [ -d "$2" ]; do sleep 1; done; exec cotenant {subcommand} "$@"', "sh"]


def agent(settings: Settings) -> list[Object]:
    host_folders = {
        "plugins": (f"{KUBELET}/plugins", f"{KUBELET}/plugins"),
        "registry": (f"{KUBELET}/plugins_registry", f"{KUBELET}/plugins_registry"),
        "cdi": (CDI, CDI),
        "nvidia-cdi": ("/etc/cdi", "/etc/cdi"),
        "state": (STATE, STATE),
        "shared-memory": ("/dev/shm", "/dev/shm"),
    }
    shared_memory = {"name": "shared-memory", "mountPath": "/dev/shm"}
    # The image has no driver, and NVML is the driver's: the node's own is looked for below this folder.
    driver = {
        "name": "node",
        "mountPath": DRIVER_ROOT,
        "readOnly": True,
        "mountPropagation": "HostToContainer",
    }
    mounts = [{"name": name, "mountPath": inside} for name, (inside, _) in host_folders.items()]

    def container(name: str, arguments: list[str], **others: Any) -> Object:
        return {"name": name, "image": settings.image, "args": arguments, **others}

    privileged = {"privileged": True}
    node_name = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    gpu_driver = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    containers = [
        container(
            "agent",
            ["kubernetes", "agent"],
            env=[node_name, *gpu_driver],
            securityContext=privileged,
            volumeMounts=[*mounts, driver],
        ),
        container(
            "daemon",
            ["--segment", SEGMENT, "--policy", settings.policy, "--linger", "inf"],
            command=once_there("daemon"),
            env=gpu_driver,
            securityContext=privileged,
            volumeMounts=[shared_memory, driver],
        ),
        container(
            "metrics",
            ["--segment", SEGMENT, "--listen", f"0.0.0.0:{METRICS_PORT}", "--public"],
            command=once_there("metrics"),
            ports=[{"name": "metrics", "containerPort": METRICS_PORT}],
            securityContext={"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            volumeMounts=[shared_memory],
        ),
    ]
    spec = {
        "serviceAccountName": "cotenant-agent",
        "priorityClassName": "system-node-critical",
        "hostPID": True,  # NVML and the segment name processes by the host's numbers
        "tolerations": [{"operator": "Exists"}],
        "containers": containers,
        "volumes": [
            {"name": name, "hostPath": {"path": host, "type": "DirectoryOrCreate"}}
            for name, (_, host) in host_folders.items()
        ]
        + [{"name": "node", "hostPath": {"path": "/", "type": "Directory"}}],
    }
    # Many a Prometheus finds what it scrapes by these.
    scraped = {"prometheus.io/scrape": "true", "prometheus.io/port": str(METRICS_PORT)}
    return [
        labelled(
            "DaemonSet",
            "apps/v1",
            "cotenant-agent",
            settings.namespace,
            "agent",
            spec={
                "selector": {"matchLabels": pod_labels("agent")},
                "template": {
                    "metadata": {"labels": pod_labels("agent"), "annotations": scraped},
                    "spec": spec,
                },
            },
        )
    ]


# No container but the agent's needs anything of its node.
UNPRIVILEGED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 65534,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def placer(settings: Settings) -> list[Object]:
    seen = ["list", "watch"]
    rules = [
        rule(["resource.k8s.io"], ["resourceslices", "resourceclaimtemplates"], seen),
        rule(["resource.k8s.io"], ["resourceclaims"], [*seen, "create", "delete"]),
        rule([""], ["nodes"], seen),
        rule([""], ["pods"], [*seen, "patch"]),
        rule([""], ["pods/status"], ["patch"]),  # the node that the scheduler tries first
        rule([""], ["events"], ["create"]),
    ]
    container = {
        "name": "placer",
        "image": settings.image,
        "args": ["kubernetes", "placer", "--policy", settings.placer],
        "volumeMounts": [{"name": "temporary", "mountPath": "/tmp"}],
        "securityContext": dict(UNPRIVILEGED),
    }
    spec = {
        "serviceAccountName": PLACER,
        "containers": [container],
        "volumes": [{"name": "temporary", "emptyDir": {}}],
    }
    return [
        *rights(PLACER, "placer", settings, rules),
        labelled(
            "Deployment",
            "apps/v1",
            PLACER,
            settings.namespace,
            "placer",
            spec={
                "replicas": 1,
                "strategy": {"type": "Recreate"},  # two would count each other's choices late
                "selector": {"matchLabels": pod_labels("placer")},
                "template": {"metadata": {"labels": pod_labels("placer")}, "spec": spec},
            },
        ),
    ]


def webhook(settings: Settings) -> list[Object]:
    secret = labelled(
        "Secret",
        "v1",
        WEBHOOK,
        settings.namespace,
        "webhook",
        type="kubernetes.io/tls",
        data={"tls.crt": settings.certificate, "tls.key": settings.key},
    )
    container = {
        "name": "webhook",
        "image": settings.image,
        "args": [
            *("kubernetes", "webhook", "--certificates", "/certificates", "--port", str(WEBHOOK_PORT)),
            *(["--placer"] if settings.placer else ()),
        ],
        "ports": [{"name": "https", "containerPort": WEBHOOK_PORT}],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": "https", "scheme": "HTTPS"}},
        "volumeMounts": [
            {"name": "certificates", "mountPath": "/certificates", "readOnly": True},
            {"name": "temporary", "mountPath": "/tmp"},
        ],
        "securityContext": dict(UNPRIVILEGED),
    }
    deployment = labelled(
        "Deployment",
        "apps/v1",
        WEBHOOK,
        settings.namespace,
        "webhook",
        spec={
            "replicas": 2,
            "selector": {"matchLabels": pod_labels("webhook")},
            "template": {
                # The webhook reads its certificate once: with another one its pods are replaced.
                "metadata": {
                    "labels": pod_labels("webhook"),
                    "annotations": {"checksum/certificate": settings.digest},
                },
                "spec": {
                    "serviceAccountName": WEBHOOK,
                    "containers": [container],
                    "volumes": [
                        {"name": "certificates", "secret": {"secretName": WEBHOOK}},
                        {"name": "temporary", "emptyDir": {}},
                    ],
                },
            },
        },
    )
    service = labelled(
        "Service",
        "v1",
        WEBHOOK,
        settings.namespace,
        "webhook",
        spec={"selector": pod_labels("webhook"), "ports": [{"port": 443, "targetPort": "https"}]},
    )
    configuration = labelled(
        "MutatingWebhookConfiguration",
        "admissionregistration.k8s.io/v1",
        WEBHOOK,
        "",
        "webhook",
        webhooks=[
            {
                "name": f"pods.{names.DRIVER}",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "NoneOnDryRun",  # it creates the claim's template
                "failurePolicy": "Fail",
                "timeoutSeconds": 5,
                "matchPolicy": "Equivalent",
                # No pod waits for the webhook but those that ask for GPUs; and never our own pods, and those that the
                # cluster needs to run.
                "matchConditions": [
                    {"name": "asks-for-gpus", "expression": matching.expression(bool(settings.placer))}
                ],
                "namespaceSelector": {
                    "matchExpressions": [
                        {
                            "key": "kubernetes.io/metadata.name",
                            "operator": "NotIn",
                            "values": ["kube-system", settings.namespace],
                        }
                    ]
                },
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                        "scope": "Namespaced",
                    }
                ],
                "clientConfig": {
                    "service": {
                        "name": WEBHOOK,
                        "namespace": settings.namespace,
                        "path": "/mutate",
                        "port": 443,
                    },
                    "caBundle": settings.authority,
                },
            }
        ],
    )
    return [secret, deployment, service, configuration]
