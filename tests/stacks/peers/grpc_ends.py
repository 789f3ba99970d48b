"""A gRPC client that asks how the server is, gives calls up, and lets others run into their limit: `grpc_ends.py PORT`."""

import os
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

sys.path.insert(0, os.path.dirname(__file__))
protos, services = grpc.protos_and_services("kserve.proto")


def ask_how_it_is(channel, stub):
    assert stub.ServerLive(protos.ServerLiveRequest()).live
    assert stub.ModelReady(protos.ModelReadyRequest(name="m")).ready
    health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    answers = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([asked]))
    assert len(next(answers).list_services_response.service) == 3


def endless(request_id):
    """Two answers, and a third one never."""
    request = protos.ModelInferRequest(model_name="grpc-model", id=request_id)
    request.parameters["max_tokens"].int64_param = 8
    request.parameters["gate"].string_param = "/none"
    return iter([request]), (("x-request-id", request_id),)


def main():
    channel = grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}")
    stub = services.GRPCInferenceServiceStub(channel)
    ask_how_it_is(channel, stub)
    requests, metadata = endless("e-cancelled")
    call = stub.ModelStreamInfer(requests, metadata=metadata)
    assert [next(call).infer_response.id for _ in range(2)] == ["e-cancelled"] * 2
    call.cancel()
    requests, metadata = endless("e-overdue")
    call = stub.ModelStreamInfer(requests, metadata=metadata, timeout=0.4)
    try:
        list(call)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
    ask_how_it_is(channel, stub)


main()
