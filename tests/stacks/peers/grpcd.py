"""A grpcio server of the KServe protocol, with health and reflection, whose writes others stamp (`stamp.c`).

How a call ends depends on its parameter `max_tokens`, as in `answer.py`.
"""

import os
import signal
import sys
import threading
import time
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from answer import TOKEN_INTERVAL_S, Writes, announce, truth
from shapes import said

sys.path.insert(0, os.path.dirname(__file__))
protos, services = grpc.protos_and_services("kserve.proto")

VERSION = "1"
# Outcome and status of a call that is refused.
REFUSED = {
    3: ("client_4xx", grpc.StatusCode.INVALID_ARGUMENT),
    4: ("server_5xx", grpc.StatusCode.INTERNAL),
    6: ("timeout", grpc.StatusCode.DEADLINE_EXCEEDED),
}


class Call:
    """What is true of one call."""

    def __init__(self, method, request, streaming):
        self.method, self.path = "POST", f"/inference.GRPCInferenceService/{method}"
        self.model, self.status, self.streaming = request.model_name, 200, streaming
        self.id, self.tokens = request.id, request.parameters["max_tokens"].int64_param
        self.outcome = REFUSED[self.tokens][0] if self.tokens in REFUSED else "ok"
        if streaming and self.tokens == 5:
            self.outcome = "in_band_error"

    api = "kserve.grpc"

    @property
    def said(self):
        if self.tokens in REFUSED:
            return said()
        return said(None, "chunks" if self.streaming else None, version=VERSION)

    def refuse(self, context):
        if self.tokens in REFUSED:
            truth(self.id, self, Writes())
            context.abort(REFUSED[self.tokens][1], self.id)


def response(request):
    answer = protos.ModelInferResponse(model_name=request.model_name, model_version=VERSION, id=request.id)
    answer.outputs.add(name="text", datatype="BYTES", shape=[1])
    answer.raw_output_contents.append(b"lorem " * 20)
    return answer


class Inference(services.GRPCInferenceServiceServicer):
    def ServerLive(self, request, context):
        return protos.ServerLiveResponse(live=True)

    def ModelReady(self, request, context):
        return protos.ModelReadyResponse(ready=True)

    def ModelInfer(self, request, context):
        call = Call("ModelInfer", request, False)
        call.refuse(context)
        time.sleep(TOKEN_INTERVAL_S)
        truth(request.id, call, Writes())
        return response(request)

    def ModelStreamInfer(self, requests, context):
        request = next(requests)
        call = Call("ModelStreamInfer", request, True)
        call.refuse(context)
        gate = request.parameters["gate"].string_param
        for number in range(call.tokens):
            while number == 2 and gate and not os.path.exists(gate) and context.is_active():
                time.sleep(0.002)
            time.sleep(TOKEN_INTERVAL_S)
            yield protos.ModelStreamInferResponse(infer_response=response(request))
        if call.outcome == "in_band_error":
            yield protos.ModelStreamInferResponse(error_message=request.id)
        truth(request.id, call, Writes())


def main():
    server = grpc.server(futures.ThreadPoolExecutor(32), options=[("grpc.so_reuseport", 0)])
    services.add_GRPCInferenceServiceServicer_to_server(Inference(), server)
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
    names = ["inference.GRPCInferenceService", health.SERVICE_NAME, reflection.SERVICE_NAME]
    reflection.enable_server_reflection(names, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    announce(port)
    stop.wait()
    server.stop(1).wait()


main()
