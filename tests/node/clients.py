"""The Python clients of clients.test.mjs: python3 clients.py openai|responses|ollama URL

Reads lines of JSON, {"call": NAME, ...}, and writes one for each: {"result": ...}, or {"error": ..., "status": ...}.
"""
import json
import sys


def without_none(value):
    return {key: one for key, one in value.items() if one is not None}


class Openai:
    def __init__(self, url):
        import openai
        self.client = openai.OpenAI(api_key="none", base_url=url + "/v1", max_retries=0)

    def ask(self, body):
        return self.client.chat.completions.create(**body).model_dump()

    def stream(self, body):
        with self.client.chat.completions.create(**body, stream=True) as stream:
            for chunk in stream:
                if chunk.choices and chunk.choices[0].delta.content:
                    yield chunk.choices[0].delta.content

    def embed(self, model, input):
        return [one.embedding for one in self.client.embeddings.create(model=model, input=input).data]

    def models(self):
        return [one.id for one in self.client.models.list()]


class Responses(Openai):
    def ask(self, body):
        response = self.client.responses.create(**self.known(body))
        return {**response.model_dump(), "output_text": response.output_text}

    def stream(self, body):
        with self.client.responses.create(**self.known(body), stream=True) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    yield event.delta

    @staticmethod
    def known(body):
        """Parameters that the package does not know go into extra_body."""
        extra = {key: body[key] for key in ("stop", "seed") if key in body}
        return {**{key: one for key, one in body.items() if key not in extra}, "extra_body": extra}


class Ollama:
    def __init__(self, url):
        import ollama
        self.client = ollama.Client(host=url)

    def ask(self, body):
        return self.client.chat(**body).model_dump()

    def stream(self, body):
        for part in self.client.chat(**body, stream=True):
            if part.message.content:
                yield part.message.content

    def embed(self, model, input):
        return [list(vector) for vector in self.client.embed(model=model, input=input).embeddings]

    def models(self):
        return [one.model for one in self.client.list().models]


def main():
    name, url = sys.argv[1:]
    client = {"openai": Openai, "responses": Responses, "ollama": Ollama}[name](url)
    pieces = iter(())
    for line in sys.stdin:
        request = json.loads(line)
        call = request.pop("call")
        if "body" in request:
            request["body"] = without_none(request["body"])
        try:
            if call == "stream":
                pieces = client.stream(request["body"])
                result = next(pieces, None)
            elif call == "next":
                result = next(pieces, None)
            elif call == "leave":
                result = pieces.close()
            else:
                result = getattr(client, call)(**request)
            answer = {"result": result}
        except Exception as error:
            answer = {"error": str(error), "status": getattr(error, "status_code", None)}
        print(json.dumps(answer), flush=True)


main()
