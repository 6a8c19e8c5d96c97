// The description of the API, by Swagger UI from the installed package: nothing is fetched from elsewhere.
SwaggerUIBundle({ url: "openapi.json", dom_id: "#docs", deepLinking: true, tryItOutEnabled: true });
