"""Keys and tensors of a GGUF file, as the gguf package reads them.

The engines of tests/reference, tests/operators and tests/reports share this file and nothing else.  Each decodes the
tensors by itself.
"""
import gguf


class Stored:
    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.keys = {name: field.contents() for name, field in self.reader.fields.items() if field.data}
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        self.arch = self.keys["general.architecture"]

    def key(self, name, default=None):
        return self.keys.get(f"{self.arch}.{name}", default)
