"""Makes a PDF of a text: documents_pdf.py TEXT PDF COLUMNS"""
import sys
from xml.sax.saxutils import escape

from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import BaseDocTemplate, Frame, PageTemplate, Paragraph

MARGIN, GAP = 50, 20


def make(text, path, columns):
    """Paragraphs of one text in columns; those of two columns are justified."""
    width, height = A4
    column = (width - 2 * MARGIN - GAP * (columns - 1)) / columns
    document = BaseDocTemplate(path, pagesize=A4, invariant=1)
    document.addPageTemplates(PageTemplate(frames=[
        Frame(MARGIN + i * (column + GAP), MARGIN, column, height - 2 * MARGIN) for i in range(columns)]))
    style = getSampleStyleSheet()["BodyText"]
    style.alignment = 4 if columns > 1 else 0
    document.build([Paragraph(escape(" ".join(part.split())), style)
                    for part in text.split("\n\n") if part.strip()])


with open(sys.argv[1], encoding="utf-8") as file:
    make(file.read(), sys.argv[2], int(sys.argv[3]))
